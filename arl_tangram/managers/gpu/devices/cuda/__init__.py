"""Devices that are GPUs of NVIDIA, through torch."""
