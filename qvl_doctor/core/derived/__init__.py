"""Derived facts: named predicates and computed values, one module per area."""
