"""The Dynamo backend `"tpu"` and export."""
