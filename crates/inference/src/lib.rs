//! Evaluations: the interface, the batch, the cache, evaluators for tests.
