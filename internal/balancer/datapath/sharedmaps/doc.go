// SPDX-License-Identifier: Apache-2.0

// Package sharedmaps has the maps that outlive a generation: counters, flows, and what schedulers and limits remember.
//
// Maps are made once and grow: New makes what is missing or too small, and takes the rest from those before. A Move
// brings flows into tables of another size or layout while packets go on; a Ledger corrects what counters say where an
// index has another owner or a map was replaced. Maps that another build has laid out differently are found by
// OtherLayouts and read field by field.
//
// The package promises that a map which is replaced loses neither counts nor flows. It attaches no program, and knows
// no pin or process.
package sharedmaps
