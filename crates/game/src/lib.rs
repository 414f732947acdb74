//! What a game is: rules, positions, actions, outcomes, observations, symmetries.
