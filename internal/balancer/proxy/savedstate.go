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
	// Workers are the master's workers, which must be ended if the master is killed.
	Workers []process.ID `json:"workers,omitempty"`
	// Rendering is HAProxy's configuration, if Complete; after an unfinished change, the next one must not build on it.
	Rendering *Rendering `json:"rendering"`
	// Complete: no change was interrupted.
	Complete bool `json:"whole"`
	// Next is the configuration that interrupted commands led to; nil if a reload was interrupted, or it is not known.
	Next *Rendering `json:"next,omitempty"`
	// Unwritten: the configuration's file could not be written, and is older than Rendering.
	Unwritten bool `json:"unfiled,omitempty"`
	// Served are the certificates that it has in memory, by the paths in the configuration.
	Served map[string]served `json:"served,omitempty"`
	// Authorities are the sums of the files of authorities that it has read, by the paths in the configuration.
	Authorities map[string]string `json:"authorities,omitempty"`
	// Draining are servers that are no longer in the rendering but still have connections.
	Draining map[string]Server `json:"left,omitempty"`
}

// served is a certificate that clients are shown.
type served struct {
	Sum       string    `json:"sum"`
	Subject   string    `json:"subject"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
}

// candidate is a checked configuration.
type candidate struct {
	rendering *Rendering
	program   program
	// certificates are the certificates read, by the paths in the configuration.
	certificates map[string]*certificate
	// authorities likewise are the files of authorities.
	authorities map[string]*authorities
}

// served returns the certificates of a candidate.
func (c *candidate) served() map[string]served {
	all := map[string]served{}
	for path, read := range c.certificates {
		all[path] = read.served()
	}
	return all
}

// authoritySums returns the sums of a candidate's files of authorities.
func (c *candidate) authoritySums() map[string]string {
	all := map[string]string{}
	for path, read := range c.authorities {
		all[path] = read.sum
	}
	return all
}
