//! Many episodes at once: gather, evaluate, apply, record.
