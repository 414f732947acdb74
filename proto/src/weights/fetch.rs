use ::weights::Assembly;

use super::v1::weights_client::WeightsClient;
use super::{FetchQuery, v1};
use crate::channel::Channel;
use crate::convert;
use crate::reconnect::Broken;

/// Fetches what the assembly lacks. Where it breaks off, what had arrived stays in the assembly.
pub(super) async fn fetch(client: &mut WeightsClient<Channel>, assembly: &mut Assembly) -> Result<(), Broken> {
    let manifest = assembly.manifest();
    let query = FetchQuery { version: manifest.version, digest: manifest.digest, offset: assembly.next_offset() };
    let mut chunks = client.fetch(v1::FetchRequest::from(query)).await?.into_inner();
    while let Some(chunk) = chunks.message().await? {
        let (offset, data) = convert::weights::chunk_from_wire(chunk)?;
        assembly.add(offset, &data)?;
    }
    if assembly.is_complete() { Ok(()) } else { Err(Broken::Ended) }
}
