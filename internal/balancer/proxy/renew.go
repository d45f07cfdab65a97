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

// RenewCertificates gives HAProxy certificates and authorities whose files have changed; see Engine. A file that cannot
// be used is reported, and the previous one is used on.
func (e *engine) RenewCertificates(ctx context.Context) error {
	back, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer back()
	switch {
	case e.ended:
		return ErrEnded
	case e.running == nil:
		return nil
	}
	failed := RenewalErrors{}
	for copied, path := range e.running.Rendering.Certificates {
		if err := e.renewCertificate(ctx, copied, path); err != nil {
			failed[path] = err
		}
	}
	for copied, path := range e.running.Rendering.Authorities {
		if err := e.renewAuthorities(ctx, copied, path); err != nil {
			failed[path] = err
		}
	}
	e.setServedCertificates()
	if len(failed) == 0 {
		return e.save()
	}
	e.updateState(func() { e.renewProblem = failed.Error() })
	return errors.Join(failed, e.save())
}

// RenewalErrors are the reasons for which files are not taken, by their paths. All others are.
type RenewalErrors map[string]error

// Error returns a line for each file.
func (r RenewalErrors) Error() string { return errors.Join(r.Unwrap()...).Error() }

// Unwrap returns the errors in the order of their paths.
func (r RenewalErrors) Unwrap() (all []error) {
	for _, path := range sortedKeys(r) {
		all = append(all, r[path])
	}
	return all
}

// renewCertificate gives HAProxy a certificate if its file has changed.
func (e *engine) renewCertificate(ctx context.Context, copied, path string) error {
	c, err := readCertificate(path)
	if err != nil {
		return fmt.Errorf("renewing a certificate: %w; the one before is served on", err)
	}
	if c.sum == e.running.Served[path].Sum {
		return nil
	}
	if why := c.served().problem(path, e.now()); why != "" {
		return fmt.Errorf("renewing a certificate: %w: %s; the one before is served on", ErrCertificate, why)
	}
	before := e.running.Served[path]
	if err := e.updateCertificate(ctx, copied, c); err != nil {
		return fmt.Errorf("renewing the certificate %s: %w; the one before is served on", path, err)
	}
	e.running.Served = maps.Clone(e.running.Served)
	e.running.Served[path] = c.served()
	e.log.Info("a certificate was renewed", "certificate", path, "before", before.NotAfter, "expires", c.leaf.NotAfter)
	return nil
}

// renewAuthorities gives HAProxy the authorities that vouch for backends if their file has changed. It reads them when
// it loads its configuration.
func (e *engine) renewAuthorities(ctx context.Context, copied, path string) error {
	a, err := readAuthorities(path)
	if err != nil {
		return fmt.Errorf("renewing the authorities of backends: %w; those before are used on", err)
	}
	if a.sum == e.running.Authorities[path] {
		return nil
	}
	if e.running.Master.IsRunning() {
		err = e.updateByReload(context.WithoutCancel(ctx), copied, a.contents)
	} else {
		err = copyFile(copied, a.contents) // HAProxy will start with the copy
	}
	if err != nil {
		return fmt.Errorf("renewing the authorities of backends in %s: %w; those before are used on", path, err)
	}
	e.running.Authorities[path] = a.sum
	e.log.Info("the authorities of backends were renewed", "file", path)
	return nil
}

// updateCertificate gives HAProxy a certificate at its socket, or by a reload if it is too large for that.
func (e *engine) updateCertificate(ctx context.Context, copied string, c *certificate) error {
	ctx = context.WithoutCancel(ctx)
	if !e.running.Master.IsRunning() {
		return copyFile(copied, c.pem) // HAProxy will start with the copy
	}
	if len(c.pem) > master.MaxPayload {
		return e.updateByReload(ctx, copied, c.pem)
	}
	worker, err := e.currentWorker(ctx)
	if err != nil {
		return err
	}
	if err := e.socket.SendPayload(ctx, worker, "set ssl cert "+copied, string(c.pem), "Transaction created",
		"Transaction updated"); err != nil {
		return err
	}
	if err := e.socket.RunWorkerCommand(ctx, worker, "commit ssl cert "+copied, "Success!"); err != nil {
		return errors.Join(err, e.socket.RunWorkerCommand(ctx, worker, "abort ssl cert "+copied, "Transaction aborted"))
	}
	return copyFile(copied, c.pem)
}

// copyFile writes the engine's copy of a file of certificates.
func copyFile(copied string, contents []byte) error {
	if err := journal.Replace(copied, contents, 0o600); err != nil {
		return fmt.Errorf("writing HAProxy's copy: %v", err)
	}
	return nil
}

// updateByReload has HAProxy read other contents of a file of certificates.
func (e *engine) updateByReload(ctx context.Context, copied string, contents []byte) error {
	before, err := readBounded(copied)
	if err != nil {
		return fmt.Errorf("reading HAProxy's copy: %v", err)
	}
	if err := copyFile(copied, contents); err != nil {
		return err
	}
	e.readAllCounts(ctx)
	if err := e.reloadAndWait(ctx, e.running.Rendering); err != nil {
		return errors.Join(err, journal.Replace(copied, before, 0o600))
	}
	e.running.Draining = nil
	return nil
}
