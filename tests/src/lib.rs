//! System tests: a cluster of real processes on port 0.
