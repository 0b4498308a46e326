"""What is known about cards, models, tokens and memory."""
