use std::fmt;
use std::str::FromStr;

use network::DenseShape;

/// How large a measured dense network is: `INPUTSxHIDDENxACTIONS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseSize(pub DenseShape);

impl fmt::Display for DenseSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(DenseShape { inputs, hidden, actions }) = self;
        write!(f, "{inputs}x{hidden}x{actions}")
    }
}

impl FromStr for DenseSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let widths: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
        match widths.as_deref() {
            Ok(&[inputs, hidden, actions]) => Ok(Self(DenseShape { inputs, hidden, actions })),
            _ => Err(format!(
                "`{text}` is not the size of a dense network: expected INPUTSxHIDDENxACTIONS, such as 126x64x7"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
