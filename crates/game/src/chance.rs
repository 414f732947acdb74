/// An outcome of chance that an action may have, with its probability: a child of a chance node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chance {
    /// The number of the outcome. Equal numbers need not mean the same in two positions.
    pub outcome: u16,
    /// Its probability, above 0.
    pub probability: f32,
}
