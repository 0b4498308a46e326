"""A small interpreter of the part of Python in which vLLM builds its argument parsers.

It walks syntax trees statement by statement; both branches of an undecided `if` are walked.
"""

from __future__ import annotations

import ast
from typing import Any

from qvl_doctor.core.vllm.evaluator import MAX_DEPTH, Evaluator, OutOfBudgetError, Scope
from qvl_doctor.core.vllm.source_tree import Module, import_base
from qvl_doctor.core.vllm.static_values import UNKNOWN, FuncValue, Instance, SuperValue

__all__ = ["Interpreter", "OutOfBudgetError"]


class _ReturnSignal(Exception):  # noqa: N818 # not an error: it carries a return value up
    def __init__(self, value: Any) -> None:
        self.value = value


class _LoopSignal(Exception):  # noqa: N818 # `break` and `continue` end the rest of one pass here
    pass


class Interpreter(Evaluator):
    """Walks functions of one program.

    `natives` replaces functions of the tree, by name, with functions of ours (`get_kwargs`).
    """

    def run(self, func: FuncValue, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Walk the body of a function with these arguments; its return value."""
        if self.depth > MAX_DEPTH:
            return UNKNOWN
        scope: Scope = dict(func.closure or {})
        given = list(args)
        if func.owner is not None:
            decorators = {d.id for d in func.node.decorator_list if isinstance(d, ast.Name)}
            if "classmethod" in decorators:
                bound = func.bound.of if isinstance(func.bound, Instance) else func.bound
                given.insert(0, bound)
            elif "staticmethod" not in decorators:
                given.insert(0, func.bound)
            scope["__super__"] = SuperValue(func.owner, given[0] if given else None)
        parameters = [a.arg for a in (*func.node.args.posonlyargs, *func.node.args.args)]
        defaults = func.node.args.defaults
        for parameter, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True):
            scope[parameter] = self.evaluate(default, {}, func.module)
        scope.update(zip(parameters, given, strict=False))
        scope.update(kwargs)
        for parameter in parameters:
            scope.setdefault(parameter, UNKNOWN)
        self.depth += 4
        try:
            self.execute(func.node.body, scope, func.module)
        except _ReturnSignal as signal:
            return signal.value
        finally:
            self.depth -= 4
        return None

    def execute(self, body: list[ast.stmt], scope: Scope, module: Module) -> None:
        """Walk statements."""
        for statement in body:
            self.step()
            self._statement(statement, scope, module)

    def _statement(self, statement: ast.stmt, scope: Scope, module: Module) -> None:  # noqa: PLR0912 # one case a kind
        match statement:
            case ast.Expr(value=value):
                self.evaluate(value, scope, module)
            case ast.Assign(targets=targets, value=value_node):
                value = self.evaluate(value_node, scope, module)
                for target in targets:
                    self.assign(target, value, scope, module)
            case ast.AnnAssign(target=target, value=ast.expr() as value_node):
                self.assign(target, self.evaluate(value_node, scope, module), scope, module)
            case ast.AugAssign(target=ast.Name() | ast.Subscript() as target, op=op, value=value_node):
                joined = ast.copy_location(ast.BinOp(target, op, value_node), statement)
                self.assign(target, self.evaluate(joined, scope, module), scope, module)
            case ast.If(test=test, body=then, orelse=other):
                self._branch(self.truth(self.evaluate(test, scope, module)), then, other, scope, module)
            case ast.For(target=target, iter=source, body=then):
                for item in self.iterate(self.evaluate(source, scope, module)):
                    self.assign(target, item, scope, module)
                    try:
                        self.execute(then, scope, module)
                    except _LoopSignal:
                        continue
            case ast.With(body=then) | ast.Try(body=then):
                self.execute(then, scope, module)
            case ast.Return(value=value_or_none):
                raise _ReturnSignal(None if value_or_none is None else self.evaluate(value_or_none, scope, module))
            case ast.Break() | ast.Continue():
                raise _LoopSignal
            case ast.Delete(targets=targets):
                for target in targets:
                    self._delete(target, scope, module)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                scope[statement.name] = FuncValue(module, statement, closure=scope)
            case ast.Import(names=names):
                for alias in names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    scope[alias.asname or name] = self.imported(name, None)
            case ast.ImportFrom(names=names):
                base = import_base(statement, module.package)
                for alias in names:
                    scope[alias.asname or alias.name] = self.imported(base, alias.name)
            case _:
                pass

    def _branch(
        self, truth: bool | None, then: list[ast.stmt], other: list[ast.stmt], scope: Scope, module: Module
    ) -> None:
        if truth is not None:
            self.execute(then if truth else other, scope, module)
            return
        for body in (then, other):
            try:
                self.execute(body, scope, module)
            except (_ReturnSignal, _LoopSignal):
                continue  # it may not have been taken: go on behind the `if`

    def assign(self, target: ast.expr, value: Any, scope: Scope, module: Module) -> None:
        """Bind a name, the names of a tuple, or an item of a dictionary."""
        match target:
            case ast.Name(id=name):
                scope[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = value if isinstance(value, tuple | list) and len(value) == len(targets) else None
                for index, inner in enumerate(targets):
                    self.assign(inner, UNKNOWN if values is None else values[index], scope, module)
            case ast.Subscript(value=owner_node, slice=index_node):
                owner = self.evaluate(owner_node, scope, module)
                index = self.evaluate(index_node, scope, module)
                if isinstance(owner, dict) and isinstance(index, str):
                    owner[index] = value
            case _:
                pass

    def _delete(self, target: ast.expr, scope: Scope, module: Module) -> None:
        if isinstance(target, ast.Subscript):
            owner = self.evaluate(target.value, scope, module)
            index = self.evaluate(target.slice, scope, module)
            if isinstance(owner, dict) and isinstance(index, str):
                owner.pop(index, None)
