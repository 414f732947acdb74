//! The replay table: selectors, rate limiter, window; pure.
