//! Monte Carlo tree search: select, expand, back up; no rules, no clock, no thread.
