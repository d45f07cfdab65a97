// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// BackUp keeps etcd's present content, for Restore. The control plane is away meanwhile, as it is for Restore.
func (c *Cluster) BackUp(ctx context.Context) error {
	return c.control.without(ctx, func(data, kept string) error {
		return errors.Join(os.RemoveAll(kept), os.CopyFS(kept, os.DirFS(data)))
	})
}

// Restore has etcd go back to its content at the last BackUp, without the steps by which Kubernetes would hear of it.
func (c *Cluster) Restore(ctx context.Context) error {
	return c.control.without(ctx, func(data, kept string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		// etcd wants its directories for itself.
		return errors.Join(os.CopyFS(data, os.DirFS(kept)), os.Chmod(data, 0o700))
	})
}

// without does something to the data of etcd, and where a backup of it is kept, while the control plane is away.
func (p *controlPlane) without(ctx context.Context, do func(data, kept string) error) error {
	dir := p.cluster.Control.Dir
	err := errors.Join(p.managers.Kill(ctx), p.server.Kill(ctx), p.etcd.Kill(ctx))
	if err == nil {
		err = do(filepath.Join(dir, "etcd"), filepath.Join(dir, "etcd-backup"))
	}
	if err != nil {
		return err
	}
	return p.start(ctx)
}
