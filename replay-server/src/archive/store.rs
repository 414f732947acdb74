use std::sync::Arc;

use futures::TryStreamExt as _;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode};

/// The failure of a store.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// The objects of one archive, by name.
pub trait Store: Send + Sync {
    /// Returns all objects: names, and sizes in bytes.
    fn list(&self) -> impl Future<Output = Result<Vec<(String, u64)>, StoreError>> + Send;

    /// Returns the content of an object; `None` if there is no such object.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;

    /// Creates or replaces an object atomically.
    fn put(&self, name: &str, content: Vec<u8>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Creates an object atomically; returns false if it exists already.
    fn create(&self, name: &str, content: Vec<u8>) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Removes an object, if there is one.
    fn remove(&self, name: &str) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The objects below a prefix of an object store.
#[derive(Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Key,
}

impl Objects {
    /// Returns the objects of `store` below `prefix`.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Key) -> Self {
        Self { store, prefix }
    }

    fn key(&self, name: &str) -> Key {
        self.prefix.clone().join(name)
    }
}

impl Store for Objects {
    async fn list(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let found: Vec<_> = self.store.list(Some(&self.prefix)).try_collect().await?;
        let named = |meta: &object_store::ObjectMeta| {
            let name = meta.location.filename()?;
            // Objects in directories below the prefix belong to other archives.
            (meta.location == self.key(name)).then(|| (name.to_owned(), meta.size))
        };
        Ok(found.iter().filter_map(named).collect())
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.store.get(&self.key(name)).await {
            Ok(found) => Ok(Some(found.bytes().await?.into())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Result<(), StoreError> {
        self.store.put(&self.key(name), content.into()).await?;
        Ok(())
    }

    async fn create(&self, name: &str, content: Vec<u8>) -> Result<bool, StoreError> {
        match self.store.put_opts(&self.key(name), content.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn remove(&self, name: &str) -> Result<(), StoreError> {
        match self.store.delete(&self.key(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
