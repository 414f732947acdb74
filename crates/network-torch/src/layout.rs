use crate::{Error, MemoryFormat};

/// Writes observations `[B, C, cells]` as `[B, cells, C]` to `to`, which has the same length.
pub(crate) fn channels_last(observations: &[f32], planes: usize, cells: usize, to: &mut [f32]) {
    for (from, to) in observations.chunks_exact(planes * cells).zip(to.chunks_exact_mut(planes * cells)) {
        for (plane, values) in from.chunks_exact(cells).enumerate() {
            for (cell, &value) in values.iter().enumerate() {
                to[cell * planes + plane] = value;
            }
        }
    }
}

impl MemoryFormat {
    /// Returns a tensor `[B, C, H, W]` in this format, without a copy if it already is. Gradients flow back.
    ///
    /// Rejected alternative: libtorch's `contiguous` keeps the strides of dimensions of size 1. Convolutions then
    /// take the tensor for channels last, and everything after them is computed in that format.
    pub(crate) fn arrange(self, tensor: &tch::Tensor) -> Result<tch::Tensor, Error> {
        let (_, channels, height, width) = tensor.size4()?;
        let channels_last = (height * width * channels, 1, width * channels, channels);
        Ok(match self {
            Self::ChannelsLast if tensor.stride4()? == channels_last => tensor.shallow_clone(),
            Self::ChannelsLast => tensor.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])?,
            Self::ChannelsFirst => tensor.f_reshape([-1])?.f_view(tensor.size().as_slice())?,
        })
    }

    /// Flattens `[B, C, H, W]` to `[B, H · W · C]` or `[B, C · H · W]`, whichever copies nothing.
    pub(crate) fn flatten(self, x: &tch::Tensor) -> Result<tch::Tensor, Error> {
        let batch = x.size()[0];
        Ok(match self {
            Self::ChannelsLast => x.f_permute([0, 2, 3, 1])?.f_reshape([batch, -1])?,
            Self::ChannelsFirst => x.f_reshape([batch, -1])?,
        })
    }

    /// Returns a matrix `[out, cells · channels]` with columns in the order of [`flatten`](Self::flatten).
    pub(crate) fn columns(self, matrix: &tch::Tensor, channels: usize) -> Result<tch::Tensor, Error> {
        let (rows, channels) = (matrix.size()[0], i64::try_from(channels).expect("channels are few"));
        Ok(match self {
            Self::ChannelsLast => matrix.shallow_clone(),
            Self::ChannelsFirst => matrix.f_view([rows, -1, channels])?.f_transpose(1, 2)?.f_reshape([rows, -1])?,
        })
    }
}
