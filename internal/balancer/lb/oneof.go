// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// oneOf sets a word that is written as one of those that there are; anything else is the error unknown.
func oneOf[W ~string](to *W, text []byte, all []W, unknown error) error {
	if !slices.Contains(all, W(text)) {
		return fmt.Errorf("%w %q: use one of %s", unknown, text, list(all))
	}
	*to = W(text)
	return nil
}

// list returns words with commas between them.
func list[W ~string](words []W) string {
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = string(word)
	}
	return strings.Join(names, ", ")
}

// Errors that a parser of these types may return.
var (
	ErrUnknownProtocol   = errors.New("unknown protocol")
	ErrUnknownScheduler  = errors.New("unknown scheduler")
	ErrUnknownHash       = errors.New("unknown hash")
	ErrUnknownRefusal    = errors.New("unknown refusal")
	ErrUnknownHook       = errors.New("unknown hook")
	ErrUnknownCheck      = errors.New("unknown check")
	ErrUnknownVia        = errors.New("unknown way of a check")
	ErrUnknownOnDown     = errors.New("unknown fate of flows")
	ErrUnknownOnEmpty    = errors.New("unknown fate of a VIP")
	ErrUnknownSpeaks     = errors.New("unknown protocol of a proxy")
	ErrUnknownFamily     = errors.New("unknown family of addresses")
	ErrUnknownSpeaker    = errors.New("unknown speaker of BGP")
	ErrUnknownBackendTLS = errors.New("unknown encryption of backends")
)
