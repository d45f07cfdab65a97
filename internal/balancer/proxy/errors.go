// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/proxy/snippet"
)

// Errors that a caller may test for.
var (
	// ErrNoProgram: HAProxy is not installed, or not where the configuration says.
	ErrNoProgram = errors.New("HAProxy is not there")
	// ErrTooOld: HAProxy is older than Oldest.
	ErrTooOld = errors.New("HAProxy is too old")
	// ErrRefused: HAProxy does not accept the configuration.
	ErrRefused = errors.New("HAProxy refuses the configuration")
	// ErrSnippet: lines of HAProxy's own language would reach beyond the section that they are for.
	ErrSnippet = snippet.Err
	// ErrValue: a value cannot be written into HAProxy's configuration.
	ErrValue = errors.New("cannot be handed to HAProxy")
	// ErrCertificate: a certificate cannot be served.
	ErrCertificate = errors.New("certificate cannot be served")
	// ErrEnded: Leave or Stop was called before.
	ErrEnded = errors.New("the proxy engine has been left or stopped")
)
