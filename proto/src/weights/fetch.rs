use ::weights::{Assembly, AssemblyError};
use experience::Invalid;
use tonic::Status;
use tonic::transport::Channel;

use super::v1::weights_client::WeightsClient;
use super::{FetchQuery, v1};
use crate::convert;

/// Why a fetch stopped before its end. What had arrived stays in the assembly.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    Status(#[from] Status),
    #[error(transparent)]
    Chunk(#[from] Invalid),
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
}

/// Fetches what the assembly lacks.
pub(super) async fn fetch(client: &mut WeightsClient<Channel>, assembly: &mut Assembly) -> Result<(), FetchError> {
    let manifest = assembly.manifest();
    let query = FetchQuery { version: manifest.version, digest: manifest.digest, offset: assembly.next_offset() };
    let mut chunks = client.fetch(v1::FetchRequest::from(query)).await?.into_inner();
    while let Some(chunk) = chunks.message().await? {
        let (offset, data) = convert::weights::chunk_from_wire(chunk)?;
        assembly.add(offset, &data)?;
    }
    if assembly.is_complete() {
        Ok(())
    } else {
        let (got, size_bytes) = (assembly.next_offset(), assembly.manifest().size_bytes);
        Err(AssemblyError::TooShort { got, size_bytes }.into())
    }
}
