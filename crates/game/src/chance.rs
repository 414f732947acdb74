/// A chance outcome that an action may have, with the probability: a child of a chance node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chance {
    /// Number of the outcome. Equal numbers need not mean the same in two positions.
    pub outcome: u16,
    /// Probability, above 0.
    pub probability: f32,
}
