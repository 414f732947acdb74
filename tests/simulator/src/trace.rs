use std::collections::BTreeMap;

/// Record of a run: digest, counts of taken branches, and on request the story.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hasher: blake3::Hasher,
    story: Option<Vec<String>>,
    events: u64,
    fired: BTreeMap<&'static str, u64>,
}

impl Trace {
    /// Creates a trace that keeps every event as a sentence.
    pub(crate) fn with_story() -> Self {
        Self { story: Some(Vec::new()), ..Self::default() }
    }

    /// Records an event in one sentence.
    pub(crate) fn event(&mut self, sentence: String) {
        self.events += 1;
        self.hasher.update(sentence.as_bytes());
        self.hasher.update(b"\n");
        if let Some(story) = &mut self.story {
            story.push(sentence);
        }
    }

    /// Adds bytes to the digest only.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Counts a branch.
    pub(crate) fn fired(&mut self, branch: &'static str) {
        *self.fired.entry(branch).or_default() += 1;
    }

    pub(crate) fn digest(&self) -> blake3::Hash {
        self.hasher.finalize()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn into_parts(self) -> (Vec<String>, BTreeMap<&'static str, u64>) {
        (self.story.unwrap_or_default(), self.fired)
    }
}
