// SPDX-License-Identifier: Apache-2.0

// Package sharedmaps has the maps that outlive a generation: counters, flows, and the state of schedulers and limits.
//
// Maps are made once and grow: New makes those that are missing or too small, and takes the others from the previous
// ones. A Move brings flows into tables of another size or layout while packets go on; a Ledger corrects counters where
// an index has another owner or a map was replaced. Maps in another build's layout are found by OtherLayouts and read
// field by field.
//
// The package promises that a map which is replaced loses neither counts nor flows. It attaches no program, and knows
// no pin or process.
package sharedmaps
