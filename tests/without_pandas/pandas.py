"""Stands before pandas on the path of the programs that tests start, which then cannot import it.

The packages need no pandas, but PySpark and pyarrow import it where it is installed. That takes each of Spark's Python
workers 0.2 s of processor time. The client of Spark Connect needs pandas, and has it: tests/spark/test_connect.py.
"""

raise ModuleNotFoundError("the programs that tests start have no pandas", name="pandas")
