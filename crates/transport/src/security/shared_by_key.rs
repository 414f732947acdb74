//! Values shared by all users of a key, for as long as there are users.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Holds a value for each key in use. Unused values are dropped whenever the table would grow.
#[derive(Debug)]
pub struct SharedByKey<K, V> {
    open: Mutex<HashMap<K, Weak<V>>>,
}

impl<K, V> Default for SharedByKey<K, V> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<K: Eq + Hash, V> SharedByKey<K, V> {
    /// Returns the value of `key`; creates the value if there are no users.
    pub fn get_or_make(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == open.capacity() {
            open.retain(|_, value| value.strong_count() > 0);
        }
        let entry = open.entry(key).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let value = Arc::new(make());
            *entry = Arc::downgrade(&value);
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shared_while_it_is_used_and_forgotten_afterwards() {
        let shared = SharedByKey::default();
        let first = shared.get_or_make(1, || "first");
        assert_eq!(*shared.get_or_make(1, || "second"), "first");
        assert_eq!(*shared.get_or_make(2, || "other"), "other");
        drop(first);
        assert_eq!(*shared.get_or_make(1, || "second"), "second");
        for key in 0..100_000 {
            shared.get_or_make(key, || "unused");
        }
        assert!(shared.open.lock().unwrap().len() < 1000);
    }
}
