"""Tests of the Dynamo backend."""
