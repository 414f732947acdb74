//! Trains networks on the CPU without libtorch.

mod activation;
mod buffer;
mod convolution;
mod losses;
mod matrix;
mod norm;
mod parts;
mod path;
#[cfg(test)]
mod reference;
mod shape;
mod threads;
mod tower;
mod vector;
mod weight_gradient;

pub use path::Path;

#[cfg(test)]
mod tests {
    pub(crate) mod networks;
}
