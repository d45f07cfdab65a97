// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumeRetry is how long a pod waits for a Secret or ConfigMap that is not there.
const volumeRetry = time.Second

// makeVolumes writes the Secrets and ConfigMaps of a pod's volumes into directories, and waits until they are there, as
// a kubelet does. Processes share the machine's files, so nothing is mounted: programs are told the directory.
func (w *podWorker) makeVolumes() error {
	for i := range w.pod.Spec.Volumes {
		v := &w.pod.Spec.Volumes[i]
		var read func(context.Context) (map[string][]byte, error)
		var items []corev1.KeyToPath
		switch {
		case v.Secret != nil:
			read, items = func(ctx context.Context) (map[string][]byte,
				error) {
				return w.readSecret(ctx, v.Secret.SecretName)
			}, v.Secret.Items
		case v.HostPath != nil:
			if err := os.MkdirAll(w.volume(v.Name), 0o755); err != nil {
				return fmt.Errorf("volume %s: %w", v.Name, err)
			}
			continue
		case v.ConfigMap != nil:
			read, items = func(ctx context.Context) (map[string][]byte,
				error) {
				return w.readConfigMap(ctx, v.ConfigMap.Name)
			}, v.ConfigMap.Items
		default:
			return fmt.Errorf("volume %s: this cluster has volumes of Secrets, ConfigMaps and host paths only", v.Name)
		}
		files, err := w.awaitObject(read)
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		if err := writeVolume(w.volume(v.Name), files, items); err != nil {
			return err
		}
	}
	return nil
}

// volume returns the directory of a volume. A host path is below the node's own directory, for nodes share the
// machine's files.
func (w *podWorker) volume(name string) string {
	for i := range w.pod.Spec.Volumes {
		if v := &w.pod.Spec.Volumes[i]; v.Name == name && v.HostPath != nil {
			return filepath.Join(w.kubelet.node.Host.Dir, "files", v.HostPath.Path)
		}
	}
	return filepath.Join(w.kubelet.node.Host.Dir, "volumes", string(w.pod.UID), name)
}

func (w *podWorker) readSecret(ctx context.Context, name string) (map[string][]byte, error) {
	secret, err := w.kubelet.client.CoreV1().Secrets(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

func (w *podWorker) readConfigMap(ctx context.Context, name string) (map[string][]byte, error) {
	found, err := w.kubelet.client.CoreV1().ConfigMaps(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for key, text := range found.Data {
		files[key] = []byte(text)
	}
	return files, nil
}

// awaitObject reads an object until it is there, or the pod is to end.
func (w *podWorker) awaitObject(read func(context.Context) (map[string][]byte, error)) (map[string][]byte, error) {
	for {
		files, err := read(w.kubelet.ctx)
		if err == nil {
			return files, nil
		}
		select {
		case <-w.kubelet.ctx.Done():
			return nil, err
		case e := <-w.ends:
			w.sendEnd(e) // for run
			return nil, err
		case <-time.After(volumeRetry):
		}
	}
}

func writeVolume(dir string, files map[string][]byte, items []corev1.KeyToPath) error {
	paths := map[string]string{}
	for key := range files {
		paths[key] = key
	}
	if len(items) > 0 {
		clear(paths)
		for _, item := range items {
			paths[item.Key] = item.Path
		}
	}
	for key, path := range paths {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[key], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// located returns a text of a container, an argument or the value of a variable, with the directory of a volume in the
// place of the path at which the container has it, also behind `--flag=`.
func (w *podWorker) located(c *corev1.Container, text string) string {
	if flag, path, found := strings.Cut(text, "="); found && strings.HasPrefix(flag, "--") {
		return flag + "=" + w.located(c, path)
	}
	for _, mount := range c.VolumeMounts {
		if text == mount.MountPath {
			return w.volume(mount.Name)
		}
		if rest, below := strings.CutPrefix(text, strings.TrimSuffix(mount.MountPath, "/")+"/"); below {
			return filepath.Join(w.volume(mount.Name), rest)
		}
	}
	return text
}
