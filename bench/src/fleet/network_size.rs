use std::fmt;
use std::str::FromStr;

/// The size of a network: `BLOCKSxCHANNELS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkSize {
    /// Residual blocks of the tower.
    pub blocks: usize,
    /// Channels of the tower.
    pub channels: usize,
}

impl fmt::Display for NetworkSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.blocks, self.channels)
    }
}

impl FromStr for NetworkSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = text.split_once('x').and_then(|(blocks, channels)| {
            let (blocks, channels) = (blocks.parse().ok()?, channels.parse().ok()?);
            Some(Self { blocks, channels }).filter(|size| size.blocks > 0 && size.channels > 0)
        });
        size.ok_or_else(|| format!("`{text}` is not a network: write BLOCKSxCHANNELS, such as 6x64"))
    }
}
