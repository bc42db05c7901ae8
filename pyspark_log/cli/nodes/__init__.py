"""Commands about nodes and the cluster that they make up."""
