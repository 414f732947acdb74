//! What a process is: configuration, tracing, metrics, health, drain.
