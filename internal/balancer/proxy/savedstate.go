// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/proxy/process"
)

// savedState is the state of a running HAProxy, saved for the next process.
type savedState struct {
	Master  process.ID `json:"master"`
	Started time.Time  `json:"began"`
	Program string     `json:"program"`
	Version string     `json:"version"`
	// Workers are the processes that the master has made: those that it leaves when it is killed must be ended.
	Workers []process.ID `json:"workers,omitempty"`
	// Rendering is HAProxy's configuration, if Whole; where a change was not finished, the next one must not build on
	// it.
	Rendering *Rendering `json:"rendering"`
	// Rendering is HAProxy's configuration, if Complete; where a change was not finished, the next one must not
	// build on it.
	Complete bool `json:"whole"`
	// Next is the configuration to which commands were bringing HAProxy when it was not Whole; nil where a reload was,
	// or it is not known.
	Next *Rendering `json:"next,omitempty"`
	// Unwritten: the configuration's file is older than Rendering, for it could not be written.
	Unwritten bool `json:"unfiled,omitempty"`
	// Served are the certificates that it has in memory, by the paths in the configuration.
	Served map[string]served `json:"served,omitempty"`
	// Draining are servers that the rendering has no more, and that have connections still.
	Draining map[string]Server `json:"left,omitempty"`
}

// served is a certificate that clients are shown.
type served struct {
	Sum       string    `json:"sum"`
	Subject   string    `json:"subject"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
}

// candidate is a configuration that was found good.
type candidate struct {
	rendering *Rendering
	program   program
	// certificates are those that were read, by the paths in the configuration.
	certificates map[string]*certificate
}

// served returns the certificates of a candidate.
func (c *candidate) served() map[string]served {
	all := map[string]served{}
	for path, read := range c.certificates {
		all[path] = read.served()
	}
	return all
}
