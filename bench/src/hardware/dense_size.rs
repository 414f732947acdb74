use std::fmt;
use std::str::FromStr;

use network_torch::DenseShape;

/// The size of a measured dense network: `INPUTSxHIDDENxACTIONS`.
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
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_back() {
        let size: DenseSize = "126x64x7".parse().unwrap();
        assert_eq!(size, DenseSize(DenseShape { inputs: 126, hidden: 64, actions: 7 }));
        assert_eq!(size.to_string(), "126x64x7");
    }

    #[test]
    fn what_is_no_size_is_answered_with_how_one_is_written() {
        for text in ["", "64", "126x64", "126x64x7x1", "126x64xseven", "-1x64x7"] {
            let error = text.parse::<DenseSize>().unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && error.contains("126x64x7"), "{error}");
        }
    }
}
