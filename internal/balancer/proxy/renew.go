// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/journal"
)

// Renewed has HAProxy take certificates whose files have changed; see Engine. One that cannot be served is reported,
// and the one before is served on.
func (e *engine) Renewed(ctx context.Context) error {
	back, err := e.take(ctx)
	if err != nil {
		return err
	}
	defer back()
	switch {
	case e.ended:
		return ErrEnded
	case e.kept == nil:
		return nil
	}
	var all error
	for _, copied := range sortedKeys(e.kept.Rendering.Certificates) {
		if err := e.renew(ctx, copied, e.kept.Rendering.Certificates[copied]); err != nil {
			all = errors.Join(all, err)
		}
	}
	e.show()
	if all != nil {
		e.note(func() { e.broken = all.Error() })
	}
	return errors.Join(all, e.save())
}

// renew has HAProxy take one, if its file has another one.
func (e *engine) renew(ctx context.Context, copied, path string) error {
	c, err := readCertificate(path)
	if err != nil {
		return fmt.Errorf("renewing a certificate: %w; the one before is served on", err)
	}
	if c.sum == e.kept.Served[path].Sum {
		return nil
	}
	if why := c.served().trouble(path, e.now()); why != "" {
		return fmt.Errorf("renewing a certificate: %w: %s; the one before is served on", ErrCertificate, why)
	}
	before := e.kept.Served[path]
	if err := e.hand(ctx, copied, c); err != nil {
		return fmt.Errorf("renewing the certificate %s: %w; the one before is served on", path, err)
	}
	e.kept.Served = maps.Clone(e.kept.Served)
	e.kept.Served[path] = c.served()
	e.log.Info("a certificate was renewed", "certificate", path, "before", before.After, "expires", c.leaf.NotAfter)
	return nil
}

// hand hands a certificate to HAProxy at its socket, or by a reload if it is too large for that.
func (e *engine) hand(ctx context.Context, copied string, c *certificate) error {
	ctx = context.WithoutCancel(ctx)
	if !e.kept.Master.Runs() {
		return e.copy(copied, c) // it starts with the copy
	}
	if len(c.pem) > master.LargestPayload {
		return e.handByReload(ctx, copied, c)
	}
	worker, err := e.worker(ctx)
	if err != nil {
		return err
	}
	if err := e.socket.Hand(ctx, worker, "set ssl cert "+copied, string(c.pem), "Transaction created",
		"Transaction updated"); err != nil {
		return err
	}
	if err := e.socket.Do(ctx, worker, "commit ssl cert "+copied, "Success!"); err != nil {
		return errors.Join(err, e.socket.Do(ctx, worker, "abort ssl cert "+copied, "Transaction aborted"))
	}
	return e.copy(copied, c)
}

// copy writes the engine's copy of a certificate.
func (e *engine) copy(copied string, c *certificate) error {
	if err := journal.Replace(copied, c.pem, 0o600); err != nil {
		return fmt.Errorf("writing HAProxy's copy: %v", err)
	}
	return nil
}

// handByReload has HAProxy read a certificate's file.
func (e *engine) handByReload(ctx context.Context, copied string, c *certificate) error {
	before, err := readBounded(copied)
	if err != nil {
		return fmt.Errorf("reading HAProxy's copy: %v", err)
	}
	if err := e.copy(copied, c); err != nil {
		return err
	}
	e.gather(ctx)
	if err := e.reloaded(ctx, e.kept.Rendering); err != nil {
		return errors.Join(err, journal.Replace(copied, before, 0o600))
	}
	e.kept.Left = nil
	return nil
}
