"""Search again with queries that the first documents of a dense run have moved."""
