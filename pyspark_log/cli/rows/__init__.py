"""Commands that write and print rows, or copy them from and to Kafka."""
