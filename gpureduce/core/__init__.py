"""The sum: from any array to a launch and back."""
