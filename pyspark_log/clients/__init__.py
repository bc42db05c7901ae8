"""The Python clients `Producer` and `Consumer`, which need neither Spark nor Java."""
