"""The way in: from a Spark task's Arrow batches to append files and the commit that sequences them."""
