//! What actors, replay and learner say to each other.
