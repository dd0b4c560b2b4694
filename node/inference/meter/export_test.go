package meter

import "berth/compute"

// Reserved returns what is set aside for requests of a payer whose usage is in no batch.
func (m *Meter) Reserved(payer compute.Payer) compute.Credits {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.accounts[payer].reserved
}
