use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::scope::Holder;
use super::shared_by_key::SharedByKey;
use crate::status::retry_after;

/// Delay before a retry. It takes some seconds until a refused connection is closed.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Limits the connections for each token or certificate name. One name takes at most three quarters of a server's
/// connections, so a client that keeps opening connections leaves room for clients with other credentials.
#[derive(Debug)]
pub(crate) struct Identities {
    places: usize,
    open: SharedByKey<Arc<str>, Semaphore>,
}

impl Identities {
    /// Limits each name to three quarters of `connections_max`.
    pub(crate) fn new(connections_max: usize) -> Self {
        let places = (connections_max - connections_max / 4).min(Semaphore::MAX_PERMITS);
        Self { places, open: SharedByKey::default() }
    }

    /// Counts a connection of `holder` towards the limit.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: too many connections of this holder are open.
    pub(super) fn place(&self, holder: &Holder) -> Result<OwnedSemaphorePermit, Status> {
        let open = self.open.get_or_make(Arc::clone(&holder.name), || Semaphore::new(self.places));
        open.try_acquire_owned().map_err(|_| {
            let Self { places, .. } = self;
            let message = format!("{places} connections open for {}, three quarters of the total", holder.name);
            retry_after(Status::resource_exhausted(message), RETRY_AFTER)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::caller::ActorIds;
    use super::super::scope::{Credential, Scopes};
    use super::*;

    fn holder(name: &str) -> Holder {
        let credential = Credential::Certificate(Some(name.into()));
        Holder { credential, name: name.into(), scopes: Scopes::of(&[]), actors: ActorIds::Any }
    }

    #[test]
    fn one_holder_takes_three_quarters_of_the_places_and_another_is_not_affected() {
        for (connections_max, expected) in [(1, 1), (2, 2), (4, 3), (100, 75)] {
            let identities = Identities::new(connections_max);
            let mut places = Vec::new();
            while let Ok(place) = identities.place(&holder("actor")) {
                places.push(place);
            }
            assert_eq!(places.len(), expected, "of {connections_max}");
            assert!(identities.place(&holder("learner")).is_ok());
            places.pop();
            assert!(identities.place(&holder("actor")).is_ok());
        }
    }
}
