"""Copies topics from Kafka into the log, and back. Needs the extra `kafka`; nothing else imports this package."""
