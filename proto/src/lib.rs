//! The wire: messages, conversions, typed clients.
