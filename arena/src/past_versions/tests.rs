//! Claims about the versions that are kept.

use std::fs;

use tempfile::TempDir;
use weights::{Architecture, Digest, Manifest, WeightsVersion};

use super::PastVersions;

fn bytes(version: u64) -> Vec<u8> {
    format!("weights {version}").into_bytes()
}

fn manifest(version: u64) -> Manifest {
    let bytes = bytes(version);
    let architecture = Architecture {
        game: "connect_four".into(),
        planes: 3,
        height: 6,
        width: 7,
        actions: 7,
        channels: 8,
        blocks: 1,
        squeeze_excitation: 0,
        global_pooling: 0,
    };
    let (digest, size_bytes) = (Digest::of(&bytes), bytes.len() as u64);
    Manifest { version: WeightsVersion(version), training_step: 10 * version, digest, size_bytes, architecture }
}

fn versions(past: &PastVersions) -> Vec<u64> {
    past.manifests().iter().map(|manifest| manifest.version.0).collect()
}

fn keep_upto(folder: &TempDir, kept_max: usize, last: u64) -> PastVersions {
    let (mut past, unreadable) = PastVersions::open(folder.path(), kept_max).unwrap();
    assert!(unreadable.is_empty());
    for version in 1..=last {
        past.keep(&manifest(version), &bytes(version)).unwrap();
    }
    past
}

#[test]
fn the_versions_kept_are_the_newest_and_others_each_at_least_twice_the_one_before() {
    let folder = TempDir::new().unwrap();
    let kept = versions(&keep_upto(&folder, 4, 100));
    assert_eq!((kept.len(), kept[3]), (4, 100), "{kept:?}");
    assert!(kept.windows(2).all(|pair| pair[1] >= 2 * pair[0]), "{kept:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 8, "the others are gone from the disk");
}

#[test]
fn a_restart_finds_them_with_their_bytes() {
    let folder = TempDir::new().unwrap();
    let kept = versions(&keep_upto(&folder, 3, 9));
    let (past, _) = PastVersions::open(folder.path(), 3).unwrap();
    assert_eq!(versions(&past), kept);
    assert_eq!(past.bytes(&past.manifests()[2]).unwrap(), bytes(9));
}

#[test]
fn a_flipped_byte_is_found_by_the_digest() {
    let folder = TempDir::new().unwrap();
    let past = keep_upto(&folder, 3, 1);
    fs::write(folder.path().join("v1.safetensors"), "weights 2").unwrap();
    let error = past.bytes(&past.manifests()[0]).unwrap_err().to_string();
    assert!(error.contains("v1.safetensors is damaged"), "{error}");
}

#[test]
fn an_unreadable_manifest_is_passed_over_and_named() {
    let folder = TempDir::new().unwrap();
    keep_upto(&folder, 3, 2);
    fs::write(folder.path().join("v2.json"), "{").unwrap();
    let (past, unreadable) = PastVersions::open(folder.path(), 3).unwrap();
    assert_eq!((versions(&past), unreadable), (vec![1], vec![folder.path().join("v2.json")]));
}

#[test]
fn nothing_is_kept_where_nothing_shall_be() {
    let folder = TempDir::new().unwrap();
    assert!(versions(&keep_upto(&folder, 0, 5)).is_empty());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_unusable_version_is_given_up() {
    let folder = TempDir::new().unwrap();
    let mut past = keep_upto(&folder, 3, 3);
    past.drop_version(WeightsVersion(2)).unwrap();
    assert_eq!(versions(&past), [1, 3]);
}
