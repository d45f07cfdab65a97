// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/memberlist"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// replaceKeys replaces the keys of a ring that memberlist reads concurrently. RemoveKey moves the keys behind the
// removed one within the slice that readers have, so keys are removed from the end only.
func replaceKeys(ring *memberlist.Keyring, keys Keys) error {
	err := errors.Join(ring.AddKey(keys[0]), ring.UseKey(keys[0]))
	unwanted := func(key []byte) bool {
		return !slices.ContainsFunc(keys, func(k Key) bool { return bytes.Equal(k, key) })
	}
	for err == nil {
		installed := ring.GetKeys()
		if !slices.ContainsFunc(installed, unwanted) {
			break
		}
		err = ring.RemoveKey(installed[len(installed)-1])
	}
	for _, key := range keys {
		err = errors.Join(err, ring.AddKey(key))
	}
	return err
}

// CheckKeys checks that the members that are reached now and stay peers would still be reached with other keys: each
// must accept the first, and send with one of them. Members of a version that does not report its keys are not checked.
// Error: ErrDisconnects.
func (m *Membership) CheckKeys(keys Keys, peers []netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := keys.fingerprints()
	for _, n := range m.nodes {
		if n.state != ops.MemberAlive || n.lastState == nil || len(n.lastState.Keys) == 0 ||
			!slices.Contains(peers, n.address.Addr()) {
			continue
		}
		their := n.lastState.Keys
		switch {
		case !slices.Contains(their, names[0]):
			return fmt.Errorf(
				"%w: %s does not accept the first key, %s, but %s; add it as another line of the file there, and reload there, first",
				ErrDisconnects, n.name, names[0], strings.Join(their, ", "))
		case !slices.Contains(names, their[0]):
			return fmt.Errorf(
				"%w: %s sends by the key %s, which the file has no more; make a key of this file the first one there, and reload there, first",
				ErrDisconnects, n.name, their[0])
		}
	}
	return nil
}

// PrepareKeys checks other keys as CheckKeys does, and returns a function that makes the member accept them, and send
// with the first. No message under way is lost. Errors: ErrDisconnects, that a key has an invalid length.
func (m *Membership) PrepareKeys(keys Keys, peers []netip.Addr) (use func(), err error) {
	if len(keys) == 0 {
		return nil, errors.New("members need a key")
	}
	for _, key := range keys {
		if err := memberlist.ValidateKey(key); err != nil {
			return nil, fmt.Errorf("use other keys of members: %w", err)
		}
	}
	if err := m.CheckKeys(keys, peers); err != nil {
		return nil, err
	}
	return func() { m.useKeys(keys) }, nil
}

// useKeys replaces the keys, unless they are the same.
func (m *Membership) useKeys(keys Keys) {
	m.keysMu.Lock()
	defer m.keysMu.Unlock()
	if slices.EqualFunc(m.Keys(), keys, func(a, b Key) bool { return bytes.Equal(a, b) }) {
		return
	}
	if err := replaceKeys(m.ring, keys); err != nil { // a ring accepts all valid keys
		m.opt.Log.Error(fmt.Sprintf("use other keys of members: %v: restart the balancer", err), logAttrs("")...)
		return
	}
	m.keys.Store(&keys)
	m.opt.Log.Info("the members' keys are others: this one sends by the first of "+strings.Join(keys.fingerprints(), ", "),
		logAttrs("")...)
}

// Keys returns the accepted keys; messages are encrypted with the first.
func (m *Membership) Keys() Keys { return *m.keys.Load() }
