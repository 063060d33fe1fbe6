"""The referee, the workers and the clock: is a change right, and is it faster? See docs/judging.md."""
